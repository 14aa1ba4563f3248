"""A smaller MIG profile if the requested one is not available, decided by what is free (F04 to F07).

tiers            the configuration: tiers, what happens after the last one, hints
tier_replacement a pod one or more tiers lower, and the same again when its manifest is applied again
occupancy        the view's fleet with every pod on it: bound, not yet bound (assumed somewhere), promised
promises         admitted pods that have not been observed yet; one object, changed under compare-and-swap
promise_store    that object in the cluster
quotas           namespaces whose quota allows no more pods
recent_pods      the pods that came lately
deciding         keep, fall back, wait, pend or refuse; pure
decision_rounds  requests in batches: read the promises, decide, write them, answer
fallback_review  from a request of the API server to the response: which pods are concerned, and what is changed
decision_log     the log of all this, for people and for machines
"""
