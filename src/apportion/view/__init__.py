"""One cluster as one fleet: Kubernetes objects in, facts and answers out, for every plane, command and page.

view           the whole: fleet, log of changes, waiting pods, assumptions
informers, owner_informers
               what follows an API server and feeds a view
nodes, accelerators, claims, pods, volumes, namespaces, queues, budgets
               one feeder per kind of object, the only code that turns such an object into a part of the fleet
sharing        GPUs that several pods share
groups         which group and queue each pod belongs to: PodGroups, owners, priority classes
requests       a pod read as a request, without its group
waiting        pods that have no node yet
assumptions    what this process has decided and the API server has not shown yet
changes        what happened to the fleet, as a log with positions
leader_settings, kept_places
               what the scheduler has written down: its settings, and places for the successors of pods that it moved
why, scene, snapshot
               answers: why a pod waits, what `top` draws, the fleet as a file
"""
