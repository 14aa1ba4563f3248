"""The pod with an amount of GPU memory, as document 004 prints it."""

GPU_POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: gpu-pod
  namespace: gpu-workload
  labels:
    kai.scheduler/queue: test
  annotations:
    # choose only one of the two options below:
    #gpu-fraction: "0.2"     # 20% of GPU compute
    gpu-memory: "2000"       # 2000 MiB of GPU memory
spec:
  schedulerName: kai-scheduler
  restartPolicy: Never
  containers:
    - name: cuda-container
      image: nvcr.io/nvidia/k8s/cuda-sample:vectoradd-cuda12.5.0
  tolerations:
    - key: nvidia.com/gpu
      operator: Exists
      effect: NoSchedule
"""
