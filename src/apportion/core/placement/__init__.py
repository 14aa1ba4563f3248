"""Where in the fleet a pod goes.

selection             the best place in the fleet, the fast way or by asking every node
node_placement        the best place on one node: slices, a share, or whole GPUs
slice_search          several slices together on the GPUs of one node
node_prices           what a place costs by the policy, for one node; the reference
array_prices          the same prices for many nodes at once
node_table            the fleet as arrays
price_cache           prices by class of request, kept up to date
preferences           what a pod would rather have
slice_value           what the free placements of a sliced GPU are worth
remainder_value       what a part of a shared GPU is worth
request_mix           what is usually asked for
fragmentation_tables  what the fragmentation policy computes from that
"""
