package eino

import (
	"encoding/base64"
	"fmt"
	"strings"

	"github.com/cloudwego/eino/schema"

	workspaced "github.com/workspaced/workspaced/clients/go"
)

// parts are the blocks of a result as Eino has them.
func parts(blocks []workspaced.Block) []schema.ToolOutputPart {
	made := make([]schema.ToolOutputPart, 0, len(blocks))
	for _, block := range blocks {
		switch block := block.(type) {
		case workspaced.TextBlock:
			made = append(made, textPart(block.Text))
		case workspaced.DataBlock:
			made = append(made, dataPart(block))
		}
	}
	return made
}

// text is the blocks in words.
func text(blocks []workspaced.Block) string {
	var lines []string
	for _, block := range blocks {
		switch block := block.(type) {
		case workspaced.TextBlock:
			lines = append(lines, block.Text)
		case workspaced.DataBlock:
			lines = append(lines, description(block))
		}
	}
	return strings.Join(lines, "\n")
}

func textPart(text string) schema.ToolOutputPart {
	return schema.ToolOutputPart{Type: schema.ToolPartTypeText, Text: text}
}

func dataPart(block workspaced.DataBlock) schema.ToolOutputPart {
	common := schema.MessagePartCommon{MIMEType: block.MediaType}
	switch {
	case block.Data != nil:
		encoded := base64.StdEncoding.EncodeToString(block.Data)
		common.Base64Data = &encoded
	case strings.HasPrefix(block.URL, "workspace:"):
		return textPart(description(block)) // only the tools can read it
	default:
		common.URL = &block.URL
	}
	kind, _, _ := strings.Cut(block.MediaType, "/")
	switch kind {
	case "image":
		return schema.ToolOutputPart{Type: schema.ToolPartTypeImage, Image: &schema.ToolOutputImage{MessagePartCommon: common}}
	case "audio":
		return schema.ToolOutputPart{Type: schema.ToolPartTypeAudio, Audio: &schema.ToolOutputAudio{MessagePartCommon: common}}
	case "video":
		return schema.ToolOutputPart{Type: schema.ToolPartTypeVideo, Video: &schema.ToolOutputVideo{MessagePartCommon: common}}
	default:
		return schema.ToolOutputPart{Type: schema.ToolPartTypeFile, File: &schema.ToolOutputFile{MessagePartCommon: common}}
	}
}

func description(block workspaced.DataBlock) string {
	if block.Data == nil {
		return fmt.Sprintf("[%s at %s]", block.MediaType, block.URL)
	}
	return fmt.Sprintf("[%s of %d bytes]", block.MediaType, len(block.Data))
}
