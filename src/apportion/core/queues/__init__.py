"""Queues: who is entitled to how much.

fair_shares  how much of one resource each queue of a tree is entitled to
"""
