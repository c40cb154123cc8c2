"""Analyses: functions from trained models to tables.

One file each. An analysis's module defines ``VERSION``, ``Settings``, ``SCHEMA`` (the columns of its table),
``open_analysis_data`` (what it reads, opened before any model is) and ``analyse`` (one model's table).
"""
