"""What the scheduler writes about groups of pods. Rules Q09, Q11 and Q12.

pod_groups      PodGroups that the scheduler makes for owners
group_pods      all pods of a group
statuses        writes the status of every PodGroup
status_content  what the status of a PodGroup says
wait_reasons    why a group waits, in the form of the status
stale_groups    evicts groups that stay below their minimum
config_events   what is wrong with the Config
"""
