"""Which kinds of owners form groups of pods, and where their objects state minimum, queue and priority. Rule Q11."""
