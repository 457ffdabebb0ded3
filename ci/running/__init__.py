"""Runs a stage: checks, devices, tests under limits, verdict, report.

supervisor: checks -> devices -> pytest child(ren) in a watched process tree -> judge -> report
controller (the one visible pytest session): collect -> order -> process sets -> one report per test
rank (a pytest session without a voice): collect, send ids, run what it is told, answer
Every step appends to the event log; the report is made from the log alone.
"""
