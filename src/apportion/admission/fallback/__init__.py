"""A smaller MIG profile where the wanted one is gone, decided by what is really free (F04 to F07).

tiers            what people wrote: the ladder, what happens at its end, hints
stepping         a pod one or more tiers lower, and the same again when its manifest is applied again
occupancy        the view's fleet with every pod on it: bound, not yet bound (assumed somewhere), promised
promises         what was answered and has not shown up yet; one object, changed under compare-and-swap
promise_store    that object in the cluster
recent_pods      the pods that came lately
deciding         keep, fall back, wait, pend or refuse; pure
decision_rounds  questions in batches: read the promises, decide, write them, answer
reviewer         from a question of the API server to the answer: whom it concerns, and what is changed
decision_log     the log of all this, for people and for machines
"""
