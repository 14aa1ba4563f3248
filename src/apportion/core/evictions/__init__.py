"""Evictions: who goes so that others get a place.

room            the entry: a statement that reserves places and evicts
rules           who may be evicted for whom
running_groups  who runs, and what may be taken of it; pod_ages, who began when
search          the best plan; node_options for one pod on each node, whole_gpu_room by counting
stale_groups    groups that stay below their minimum
lost_places     reservations that are of no use any more
"""
