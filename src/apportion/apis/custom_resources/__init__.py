"""The kinds that Apportion defines or reads: claims, accelerators, queues, groups, bind requests, settings."""
