"""Why a pod waits and what would help.

group_explanation  why a group has no place
explanation        the cheapest change that admits a pod, worked out in steps
node_reasons       why each node cannot take it, kept up to date
queue_reasons      why a queue or a group has no turn
queue_advice       where the queue stands, and changes of queues that would help
remedies           changes that would help, and how to make them in the core
messages           refusals as text
"""
