//! Plays prepared strips: hosts, devices, swaps, counts, round trips; and the same strips offline.
