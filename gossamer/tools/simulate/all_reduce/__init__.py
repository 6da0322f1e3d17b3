"""An all-reduce between hosts, in virtual time: the real groups and links, with learners that compute nothing."""
