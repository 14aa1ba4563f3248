"""ValidatingAdmissionPolicies and their bindings: expressions that every matching write must satisfy."""
