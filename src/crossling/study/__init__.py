"""Recipes and studies: run, compared, reported.

One recipe:        ``recipe_run`` trains and predicts; ``run_report`` summarises; ``memory`` checks it before
A study:           ``grid`` reads the file; ``layers`` compares layers with encoders; ``plan`` makes its cells and jobs;
                   ``forecast`` is ``--dry-run``
Running it:        ``scheduling`` gives jobs to a ``pool`` of workers: ``local`` processes or ``ray`` (``ray_task``);
                   ``worker`` runs a job; ``folder`` holds the files that all of them write; ``status`` reads them
Reading it:        ``cell_scores``, ``compare``, ``choose``, ``report`` with ``report_charts``
Analysing models:  ``analyse``; ``model_arguments`` finds the models that a command names
"""
