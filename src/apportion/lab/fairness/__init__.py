"""Fair shares of queues that are written in a file, without a cluster.

files    text to plain data, numbers as they are written
cases    plain data to checked cases
running  cases to fair shares
report   fair shares for people and for programs
"""
