"""Which group and queue each pod belongs to. Rules Q02, Q07 and Q11.

owners         owners of pods, and what they say about their pods
groups         the group, queue and priority of a pod, from its PodGroup, its owners and itself
gang_members   groups in the fleet: their minimum, since when it runs, and since when pods run without it
owned_groups   groups of owners, as the PodGroups that the scheduler makes of them
grouper_config what the Config says about groups
group_objects  feeds owners, PodGroups and priority classes; pods that a change concerns are read again
"""
