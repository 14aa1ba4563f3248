"""Every name that users or other systems see, once.

Resources, labels, annotations, environment variables, finalizers, namespaces and object names. Our own names begin
with `apportion.io/`. Other modules import these names and never spell one out; namespaces and object names of an
installation they take from `apis/installation.py`.
"""

from __future__ import annotations

# Resources
NVIDIA_PREFIX = "nvidia.com/"
NVIDIA_GPU = "nvidia.com/gpu"
NVIDIA_MIG_PREFIX = "nvidia.com/mig-"
SLICE_PREFIX = "mig.das.com/"
GPU_MEMORY = "gpu.das.com/mem"
PLUS_ON_WIRE = "-plus-"

# Namespaces and fixed object names
DAS_NAMESPACE = "das-operator"
KAI_NAMESPACE = "kai-scheduler"
RESERVATION_NAMESPACE = "kai-resource-reservation"
KUBE_SYSTEM_NAMESPACE = "kube-system"
NAMESPACES_WITHOUT_ADMISSION = (DAS_NAMESPACE, KAI_NAMESPACE, RESERVATION_NAMESPACE, KUBE_SYSTEM_NAMESPACE)
DAS_OPERATOR_OBJECT = "cluster"
KAI_CONFIG_OBJECT = "kai-config"
SLICE_WEBHOOK_CONFIGURATION = "das-mutating-webhook-configuration"
FALLBACK_WEBHOOK_CONFIGURATION = "gpu-allocation-webhook"
GUARD_WEBHOOK_CONFIGURATION = "das-validating-webhook-configuration"
FALLBACK_NAMESPACE = "gpu-webhook"
GPU_OPERATOR_NAMESPACE = "gpu-operator"  # of NVIDIA; the simulator runs there
FALLBACK_SERVICE = "gpu-webhook"
FALLBACK_CERTIFICATE_SECRET = "gpu-webhook-certs"  # noqa: S105  the Secret's name
FALLBACK_PROMISES = "gpu-webhook-promises"
WEBHOOK_SERVICE = "das-operator-webhook"
WEBHOOK_CERTIFICATE_SECRET = "das-operator-webhook-certs"  # noqa: S105  the Secret's name
SCHEDULER_LEASE = "das-scheduler"
PLACE_NOTES = "das-scheduler-places"
BINDER_DEPLOYMENT = "binder"
BINDER_LEASE = "binder"
RESERVATION_SERVICE_ACCOUNT = "kai-resource-reservation"
OPERATOR_LEASE = "das-operator"
OPERATOR_DEPLOYMENT = "das-operator"
WEBHOOK_DEPLOYMENT = "das-operator-webhook"
AGENT_DAEMON_SET = "das-daemonset"
SCHEDULER_DEPLOYMENT = "das-scheduler"
REMOVED_OBJECTS = "das-operator-removed"
OPERATOR_FIELD_MANAGER = "das-operator"
DEFAULT_PARENT_QUEUE = "default-parent-queue"
DEFAULT_QUEUE = "default-queue"

# Schedulers
DEFAULT_SCHEDULER = "default-scheduler"
DAS_SCHEDULER = "das-scheduler"
KAI_SCHEDULER = "kai-scheduler"
OUR_SCHEDULERS = (DAS_SCHEDULER, KAI_SCHEDULER)

# Labels
APP_LABEL = "app.kubernetes.io/name"
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
MANAGED_BY_SCHEDULER = "das-scheduler"  # on the PodGroups that the scheduler makes; it may change no others
AGENT_APP = "das-operator-daemonset"
WEBHOOK_APP = "das-operator-webhook"
MIG_CAPABLE_LABEL = "nvidia.com/mig.capable"
MANAGED_LABEL = "apportion.io/managed"  # on nodes whose GPUs we serve though they cannot be sliced
GPU_PRODUCT_LABEL = "nvidia.com/gpu.product"
GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
GPU_COUNT_LABEL = "nvidia.com/gpu.count"
GPU_MEMORY_LABEL = "nvidia.com/gpu.memory"
GPU_REPLICAS_LABEL = "nvidia.com/gpu.replicas"  # how often NVIDIA's device plugin lists each GPU (time-slicing, MPS)
MIG_STRATEGY_LABEL = "nvidia.com/mig.strategy"
SIMULATED_POOL_LABEL = "run.ai/simulated-gpu-node-pool"
MIG_CONFIG_STATE_LABEL = "nvidia.com/mig.config.state"
QUEUE_LABEL = "kai.scheduler/queue"
SUBGROUP_LABEL = "kai.scheduler/subgroup-name"
PREEMPTIBILITY_LABEL = "kai.scheduler/preemptibility"
PRIORITY_CLASS_LABEL = "priorityClassName"  # on owners whose spec has no field for it
AGGREGATE_TO_SCHEDULER_LABEL = "apportion.io/aggregate-to-scheduler"  # on ClusterRoles for further owner kinds
GPU_GROUP_LABEL = "runai-gpu-group"  # on reservation pods and on pods with a share: the shared GPU that they belong to
GPU_GROUP_LABEL_PREFIX = "runai-gpu-group/"  # on pods with shares of several GPUs: one label for each
COMPONENT_LABEL = "app"  # as KAI Scheduler labels its components
BINDER_APP = "binder"
KAI_SCHEDULER_APP = "kai-scheduler"
RESERVATION_APP = "kai-resource-reservation"
FALLBACK_OPT_OUT_LABEL = "gpu-webhook"
FALLBACK_OPT_OUT = "disabled"
KUEUE_PREFIX = "kueue.x-k8s.io/"
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GPU_GUARD_LABEL = "apportion.io/gpu-guard"  # on namespaces
GPU_GUARD_EXEMPT = "exempt"
HOSTNAME_LABEL = "kubernetes.io/hostname"
ZONE_LABEL = "topology.kubernetes.io/zone"

# Annotations users write
GPU_FRACTION = "gpu-fraction"
GPU_SHARE_MEMORY = "gpu-memory"
GPU_FRACTION_DEVICES = "gpu-fraction-num-devices"
GPU_FRACTION_CONTAINER = "gpu-fraction-container-name"
MPS = "mps"  # of KAI Scheduler; it has no effect
POD_GROUP = "pod-group-name"
POLICY = "apportion.io/policy"
MIG_MODE = "apportion.io/mig"
FALLBACK_TIERS = "apportion.io/fallback-tiers"
FALLBACK_AT_END = "apportion.io/fallback-at-end"
FALLBACK_KEEP_MEMORY = "apportion.io/fallback-keep-memory"
FALLBACK_NODES = "apportion.io/fallback-nodes"
GPU_AFFINITY = "apportion.io/gpu-affinity"
MIG_CONFIG = "run.ai/mig.config"
EMULATED_GPU_MEMORY = "apportion.io/emulated-gpu-memory"  # MiB that the processes of a pod allocate on emulated GPUs

# Annotations we write
INJECTED_MEMORY = "apportion.io/injected-memory"
EMULATED_GPUS = "apportion.io/emulated-gpus"
EMULATED_FAILURES = "apportion.io/emulated-failures"
CDI_POD_UID = "apportion.io/pod-uid"
CDI_CONTAINERS = "apportion.io/containers"
FALLBACK_APPLIED = "gpu-webhook.k8s.io/fallback"
RECEIVED_RESOURCE_TYPE = "received-resource-type"
CONSOLIDATION = "apportion.io/consolidation"  # with POLICY on the Lease of the scheduler
RESERVED_GPU = "run.ai/reserve_for_gpu_index"  # on a reservation pod: the UUID of the GPU that it got
PLANNED_GPU = "apportion.io/planned-gpu"  # on a reservation pod: the GPU that the scheduler expects it to get
SHARERS = "apportion.io/sharers"  # on a reservation pod: the pods that share its GPU
SHARED_GPUS = "apportion.io/shared-gpus"  # on a bound pod with a share: its GPUs and what it has of each
FAILED_NODES = "apportion.io/failed-nodes"  # on a BindRequest: where earlier ones for its pod failed
BIND_REQUEST = "apportion.io/bind-request"  # on a pod with a share and its ConfigMap: the UID of the BindRequest
SHARED_GPU_CONFIG_MAP = "runai/shared-gpu-configmap"  # on a pod with a share: how the names of its ConfigMaps begin

# Values of annotations
FRACTION = "Fraction"  # of RECEIVED_RESOURCE_TYPE

# Finalizers
SLICE_FINALIZER = "apportion.io/slice"

# Container environment
VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"
CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"
GPU_PORTION = "GPU_PORTION"
NUMBER_OF_GPUS = "RUNAI_NUM_OF_GPUS"  # the older name of GPU_PORTION

# CDI
CDI_VENDOR_CLASS = "apportion.io/slice"

# The image of every plane in the shipped manifests; on the embedded cluster its containers run as child processes.
IMAGE = "ghcr.io/apportion/apportion:0.1.0"
