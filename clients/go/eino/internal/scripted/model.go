// Package scripted has a chat model without a model: its answers are written beforehand.
package scripted

import (
	"context"
	"errors"
	"sync"

	"github.com/cloudwego/eino/components/model"
	"github.com/cloudwego/eino/schema"
)

// Model gives the answers one after the other, whatever it is asked, and keeps what it was asked.
type Model struct {
	mu      sync.Mutex
	answers []*schema.Message
	asked   [][]*schema.Message
	tools   []*schema.ToolInfo
}

var _ model.ToolCallingChatModel = (*Model)(nil)

// New is a model with these answers.
func New(answers ...*schema.Message) *Model { return &Model{answers: answers} }

// Say is an answer that ends the run.
func Say(text string) *schema.Message { return schema.AssistantMessage(text, nil) }

// Use is an answer that calls tools.
func Use(calls ...schema.ToolCall) *schema.Message { return schema.AssistantMessage("", calls) }

// Call is a call of a tool; arguments are a JSON object.
func Call(id, name, arguments string) schema.ToolCall {
	return schema.ToolCall{ID: id, Type: "function", Function: schema.FunctionCall{Name: name, Arguments: arguments}}
}

// Asked are the conversations that it was asked to go on with.
func (m *Model) Asked() [][]*schema.Message {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.asked
}

// Tools are those that it was offered.
func (m *Model) Tools() []*schema.ToolInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tools
}

// WithTools keeps what is offered. It gives the same model, which is for one agent.
func (m *Model) WithTools(tools []*schema.ToolInfo) (model.ToolCallingChatModel, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tools = tools
	return m, nil
}

// Generate gives the next answer.
func (m *Model) Generate(_ context.Context, messages []*schema.Message, _ ...model.Option) (*schema.Message, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.answers) == 0 {
		return nil, errors.New("the script is at its end")
	}
	m.asked = append(m.asked, messages)
	answer := m.answers[0]
	m.answers = m.answers[1:]
	return answer, nil
}

// Stream gives the next answer as one piece.
func (m *Model) Stream(
	ctx context.Context, messages []*schema.Message, options ...model.Option,
) (*schema.StreamReader[*schema.Message], error) {
	answer, err := m.Generate(ctx, messages, options...)
	if err != nil {
		return nil, err
	}
	return schema.StreamReaderFromArray([]*schema.Message{answer}), nil
}
