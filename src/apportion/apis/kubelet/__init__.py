"""What a kubelet says and hears on its unix sockets, and what it writes down about devices."""
