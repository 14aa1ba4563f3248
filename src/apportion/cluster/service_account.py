"""Where a process finds the token, the certificate authority and the namespace of its service account."""

DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount"
# Names the folder instead where a kubelet runs containers as child processes
DIRECTORY_ENV = "APPORTION_SERVICE_ACCOUNT_DIR"
