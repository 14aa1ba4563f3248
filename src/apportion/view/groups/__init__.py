"""Which group and queue each pod belongs to. Rules Q02, Q07 and Q11.

owners         owners of pods, and what they say about their pods
groups         the group, queue and priority of a pod, from its PodGroup, its owners and itself
gang_members   groups in the fleet: their minimum, and since when it runs
group_objects  feeds owners, PodGroups and priority classes; pods that a change concerns are read again
"""
