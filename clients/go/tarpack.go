package workspaced

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
)

// packTar writes the files of a file system as a tar archive, without owners.
func packTar(w io.Writer, source fs.FS) error {
	archive := tar.NewWriter(w)
	err := fs.WalkDir(source, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return packMember(archive, source, name, info)
	})
	if err != nil {
		return err
	}
	return archive.Close()
}

func packMember(archive *tar.Writer, source fs.FS, name string, info fs.FileInfo) error {
	target := ""
	switch info.Mode().Type() {
	case 0, fs.ModeDir:
	case fs.ModeSymlink:
		var err error
		if target, err = fs.ReadLink(source, name); err != nil {
			return err
		}
	default:
		return fmt.Errorf("workspaced: %s is neither a file nor a directory nor a link", name)
	}
	header := &tar.Header{
		Name: name, Linkname: target, Size: info.Size(), Mode: int64(info.Mode().Perm()), ModTime: info.ModTime(), Format: tar.FormatPAX,
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		header.Typeflag, header.Size, header.Name = tar.TypeDir, 0, name+"/"
	case fs.ModeSymlink:
		header.Typeflag, header.Size = tar.TypeSymlink, 0
	default:
		header.Typeflag = tar.TypeReg
	}
	if err := archive.WriteHeader(header); err != nil || header.Typeflag != tar.TypeReg {
		return err
	}
	file, err := source.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(archive, file)
	return err
}
