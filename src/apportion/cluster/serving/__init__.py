"""A small HTTP server for ports that anybody on the network can reach.

messages     one request and one response as bytes
limits       what all connections together may take
connections  the open connections, and which of them is closed when there are too many
server       accepting, TLS, reading requests within their deadlines, answering
"""
