"""An embedded cluster whose nodes have emulated GPUs: its topology, its plug-ins, installing the planes on it."""
