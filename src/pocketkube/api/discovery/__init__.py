"""What the server serves, as documents for clients: discovery and OpenAPI."""
