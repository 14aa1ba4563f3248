"""`apportion reserve`: holds one GPU that pods share, and tells which one it is.

The kubelet gives the GPU to the container that this process runs in. The process writes the UUID of the GPU on its own
pod and then waits. There is one for every shared GPU, so memory is what counts here: of Python it uses the standard
library alone, and of Apportion nothing but names.
"""
