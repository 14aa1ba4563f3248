"""A smaller MIG profile where the wanted one is gone, decided by what is really free (F04 to F07).

tiers      what people wrote: the ladder, what happens at its end, hints
stepping   a pod one or more tiers lower, and the same again when its manifest is applied again
standing   the fleet with every pod on it: bound, not yet bound (placed in thought), promised
promises   what was answered and has not shown up yet; one object, changed under compare-and-swap
shelf      where the promises lie
sight      the standing and the pods that came lately, kept up to date by informers
deciding   keep, fall back, wait, pend or refuse; pure
desk       questions in batches: read the promises, decide, write them, answer
reviewer   from a question of the API server to the answer: whom it concerns, and what is changed
story      the log of all this, for people and for machines
"""
