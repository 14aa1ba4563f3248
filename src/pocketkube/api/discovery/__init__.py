"""What the server serves, told to clients: discovery documents and OpenAPI."""
