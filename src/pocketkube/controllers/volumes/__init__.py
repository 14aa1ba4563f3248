"""PersistentVolumes and PersistentVolumeClaims: binding, provisioning, protection."""
