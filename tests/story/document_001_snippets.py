"""The commands of document 001, section by section, each line as it is printed there."""

ENABLED = """
# Check if GPU sharing is enabled in the scheduler config (Config CRD)
kubectl get config -n kai-scheduler kai-config -o jsonpath='{.spec.admission.gpuSharing}'

# Verify the binder component is running
kubectl get pods -n kai-scheduler -l app=binder
"""
FRACTION = """
kubectl apply -f gpu-sharing.yaml

# Check pod status and view detailed information including events
kubectl describe pod gpu-sharing

# Verify GPU sharing annotation
kubectl get pod gpu-sharing -o jsonpath='{.metadata.annotations.gpu-fraction}'

# Check if reservation pod was created (required for GPU sharing)
kubectl get pods -n kai-resource-reservation

# Check pod logs to verify GPU access (only available when pod is running)
kubectl logs gpu-sharing -c gpu-workload
"""
MEMORY = """
kubectl apply -f gpu-memory.yaml

# Check pod status and view detailed information including events
kubectl describe pod gpu-sharing

# Verify GPU memory annotation (value in Mib)
kubectl get pod gpu-sharing -o jsonpath='{.metadata.annotations.gpu-memory}'

# Check if reservation pod was created (required for GPU sharing)
kubectl get pods -n kai-resource-reservation

# Check pod logs to verify GPU access (only available when pod is running)
kubectl logs gpu-sharing -c gpu-workload
"""
NON_DEFAULT_CONTAINER = r"""
kubectl apply -f gpu-sharing-non-default-container.yaml

# Check pod status and view detailed information including events
kubectl describe pod gpu-sharing-non-default

# Verify GPU fraction and container name annotations
kubectl get pod gpu-sharing-non-default -o jsonpath='GPU Fraction: {.metadata.annotations.gpu-fraction}, Container: {.metadata.annotations.gpu-fraction-container-name}{"\n"}'

# Check if reservation pod was created (required for GPU sharing)
kubectl get pods -n kai-resource-reservation

# Check logs for the specific container that received GPU allocation (only available when pod is running)
kubectl logs gpu-sharing-non-default -c gpu-workload
"""  # noqa: E501
TROUBLESHOOTING = r"""
# Check if GPU sharing is enabled
kubectl get config -n kai-scheduler kai-config -o jsonpath='{.spec.admission.gpuSharing}'

# Verify reservation pods are running
kubectl get pods -n kai-resource-reservation

# Check reservation pod logs
kubectl logs -n kai-resource-reservation <reservation-pod-name>

# Check scheduler logs for GPU sharing related messages
kubectl logs -n kai-scheduler -l app=kai-scheduler --tail=100 | grep -i gpu

# Check binder logs for GPU reservation issues
kubectl logs -n kai-scheduler -l app=binder --tail=100 | grep -i "gpu\|reservation"

# Check pod events for scheduling failures
kubectl describe pod <pod-name>

# Verify pod annotations and queue assignment
kubectl get pod <pod-name> -o jsonpath='Queue: {.metadata.labels.kai\.scheduler/queue}, GPU Fraction: {.metadata.annotations.gpu-fraction}, GPU Memory: {.metadata.annotations.gpu-memory}{"\n"}'
"""  # noqa: E501
SECTIONS = (ENABLED, FRACTION, MEMORY, NON_DEFAULT_CONTAINER, TROUBLESHOOTING)


def commands(section: str) -> list[str]:
    return [line for line in section.splitlines() if line and not line.startswith("#")]
