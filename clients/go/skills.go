package workspaced

import (
	"context"
	"io"
	"io/fs"
	"os"
	"time"

	pb "github.com/workspaced/workspaced/clients/go/workspacedv1"
)

// Skills installs, lists and removes skills: directories with a SKILL.md, which belong to an agent.
type Skills struct{ workspace *Workspace }

// Skills is the skills of the agent that the handle is for: see [Workspace.As].
func (w *Workspace) Skills() *Skills { return &Skills{workspace: w} }

// SkillInfo is what a model sees of a skill, and where it lies in the workspace.
type SkillInfo struct {
	Name        string
	Description string
	// Path is absolute inside the workspace.
	Path       string
	UpdateTime time.Time
	// SHA256 of its SKILL.md, in hexadecimal.
	SHA256 string
	// Metadata is the other keys of its front matter.
	Metadata map[string]any
}

// SkillFile is one file of a skill, by its path below the skill's directory.
type SkillFile struct {
	Path       string
	Size       int64
	Executable bool
}

// SkillDetail is a skill with the text of its SKILL.md and its files, of which the first 1,000 are listed.
type SkillDetail struct {
	SkillInfo
	Markdown       string
	Files          []SkillFile
	FilesTruncated bool
}

// SkillProblem is a directory that is no valid skill.
type SkillProblem struct{ Path, Reason, Message string }

// AddSkillOptions change how a skill is installed.
type AddSkillOptions struct {
	// Replace puts it in the place of another skill of its name.
	Replace bool
	// SHA256 in hexadecimal that the archive must have, for [Skills.AddArchive]; else [ErrHashMismatch].
	SHA256 string
	// MaxExpandedBytes bounds what the archive expands to. 0: the server's limit.
	MaxExpandedBytes int64
}

// Add installs a skill from the files of a file system, such as [os.DirFS] of its directory or a part of an [embed.FS]. Symbolic
// links are kept when it is an [fs.ReadLinkFS].
//
// Identical content again is fine; another skill of the name is [ErrSkillExists] unless Replace. Fails with [ErrSkillInvalid] and
// [ErrArchiveInvalid], and with the error of the file system. A call that fails or is cancelled leaves nothing.
func (s *Skills) Add(ctx context.Context, source fs.FS, options AddSkillOptions) (SkillInfo, error) {
	return s.add(ctx, options, func(w io.Writer) error { return packTar(w, source) })
}

// AddPath installs a skill from a local directory, or from an archive: zip, tar or tar.gz. See [Skills.Add].
func (s *Skills) AddPath(ctx context.Context, path string, options AddSkillOptions) (SkillInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return SkillInfo{}, err
	}
	if info.IsDir() {
		return s.Add(ctx, os.DirFS(path), options)
	}
	file, err := os.Open(path)
	if err != nil {
		return SkillInfo{}, err
	}
	defer file.Close()
	return s.AddArchive(ctx, file, options)
}

// AddArchive installs a skill from an archive, of which the kind (zip, tar, tar.gz) is recognised. See [Skills.Add].
func (s *Skills) AddArchive(ctx context.Context, archive io.Reader, options AddSkillOptions) (SkillInfo, error) {
	return s.add(ctx, options, func(w io.Writer) error { return copyTo(w, archive) })
}

func (s *Skills) add(ctx context.Context, options AddSkillOptions, content func(io.Writer) error) (SkillInfo, error) {
	w := s.workspace
	start := &pb.AddSkillStart{
		WorkspaceId: w.ID, AgentId: w.as.agent(), Replace: options.Replace, Sha256: options.SHA256,
		MaxExpandedBytes: uint64(max(options.MaxExpandedBytes, 0)),
	}
	first := &pb.AddSkillRequest{Part: &pb.AddSkillRequest_Start{Start: start}}
	chunk := func(data []byte) *pb.AddSkillRequest {
		return &pb.AddSkillRequest{Part: &pb.AddSkillRequest_Chunk{Chunk: data}}
	}
	response, err := upload(ctx, w.client, w.client.management.AddSkill, first, chunk, content)
	if err != nil {
		return SkillInfo{}, err
	}
	return skillInfoOf(response.GetSkill()), nil
}

// Get gives a skill with its text and the names of its files. Fails with [ErrSkillNotFound].
func (s *Skills) Get(ctx context.Context, name string) (SkillDetail, error) {
	w := s.workspace
	request := &pb.GetSkillRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), Name: name}
	response, err := unary(ctx, w.client, w.client.discovery.GetSkill, request, w.client.timeout)
	if err != nil {
		return SkillDetail{}, err
	}
	return SkillDetail{
		SkillInfo: skillInfoOf(response.GetSkill()),
		Markdown:  response.GetMarkdown(),
		Files: each(response.GetFiles(), func(file *pb.SkillFile) SkillFile {
			return SkillFile{file.GetPath(), int64(file.GetSizeBytes()), file.GetExecutable()}
		}),
		FilesTruncated: response.GetFilesTruncated(),
	}, nil
}

// Remove removes a skill. It tells whether there was one, or without [AllowMissing] fails with [ErrSkillNotFound]; it is repeated
// when a connection breaks only with AllowMissing.
func (s *Skills) Remove(ctx context.Context, name string, options ...RemoveSkillOption) (bool, error) {
	w := s.workspace
	request := &pb.RemoveSkillRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), Name: name}
	for _, option := range options {
		option.applyRemoveSkill(request)
	}
	response, err := repeatable(ctx, w.client, request.GetAllowMissing(), w.client.management.RemoveSkill, request)
	return response.GetRemoved(), err
}

// List gives the skills of the agent by name, as their files are now.
func (s *Skills) List(ctx context.Context) ([]SkillInfo, error) {
	return collect(pages(func(token string) ([]SkillInfo, string, error) {
		response, err := s.page(ctx, token, maxPageSize)
		return each(response.GetSkills(), skillInfoOf), response.GetNextPageToken(), err
	}))
}

// Problems gives the directories among the agent's skills that are none, with the reason.
func (s *Skills) Problems(ctx context.Context) ([]SkillProblem, error) {
	response, err := s.page(ctx, "", 1)
	if err != nil {
		return nil, err
	}
	return each(response.GetProblems(), func(problem *pb.SkillProblem) SkillProblem {
		return SkillProblem{problem.GetPath(), problem.GetReason(), problem.GetMessage()}
	}), nil
}

func (s *Skills) page(ctx context.Context, token string, size int32) (*pb.ListSkillsResponse, error) {
	w := s.workspace
	request := &pb.ListSkillsRequest{WorkspaceId: w.ID, AgentId: w.as.agent(), PageSize: size, PageToken: token}
	return unary(ctx, w.client, w.client.discovery.ListSkills, request, w.client.timeout)
}

func skillInfoOf(skill *pb.Skill) SkillInfo {
	return SkillInfo{
		Name:        skill.GetName(),
		Description: skill.GetDescription(),
		Path:        skill.GetPath(),
		UpdateTime:  when(skill.GetUpdateTime()),
		SHA256:      skill.GetSha256(),
		Metadata:    skill.GetMetadata().AsMap(),
	}
}
