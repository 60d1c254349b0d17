"""The data types: messages, tasks, turns, agent events, records; plain frozen structs."""
