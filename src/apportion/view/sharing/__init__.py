"""GPUs that several pods share: whether they may, on which devices, and what each pod has."""
