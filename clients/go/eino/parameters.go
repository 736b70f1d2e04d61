package eino

import (
	"encoding/json"

	"github.com/cloudwego/eino/schema"
	"github.com/eino-contrib/jsonschema"
)

// parameters are a JSON Schema as Eino has it. It knows the keywords of draft 2020-12; what else a schema has at its top, such as
// the definitions of older drafts, is kept.
func parameters(object map[string]any) (*schema.ParamsOneOf, error) {
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var known jsonschema.Schema
	if err := json.Unmarshal(encoded, &known); err != nil {
		return nil, err
	}
	again, err := json.Marshal(&known)
	if err != nil {
		return nil, err
	}
	kept := map[string]any{}
	if len(object) > 0 { // the empty schema is encoded as true
		if err := json.Unmarshal(again, &kept); err != nil {
			return nil, err
		}
	}
	known.Extras = map[string]any{}
	for keyword, value := range object {
		if _, found := kept[keyword]; !found {
			known.Extras[keyword] = value
		}
	}
	return schema.NewParamsOneOfByJSONSchema(&known), nil
}
