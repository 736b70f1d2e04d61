package workspaced

import (
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/types/known/structpb"
)

// jsonObject makes a JSON object of anything that encodes to one; nil and null are the empty object.
func jsonObject(value any) (*structpb.Struct, error) {
	if object, ok := value.(map[string]any); ok {
		if made, err := structpb.NewStruct(object); err == nil {
			return made, nil
		}
		// What structpb does not take as it is, such as a []string, encoding/json may.
	}
	if value == nil {
		return &structpb.Struct{}, nil
	}
	encoded, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var object map[string]any
	if err := json.Unmarshal(encoded, &object); err != nil {
		return nil, fmt.Errorf("a JSON object is needed: %w", err)
	}
	return structpb.NewStruct(object)
}
