"""Analyses: functions from models to tables.

One file each, ``analyses/<kind>.py``; helpers that several share begin with an underscore. A kind's module defines

``VERSION``
    a number that counts up when results change, so that nothing stale is read from the store;
``Settings``
    a frozen pydantic model with ``kind: Literal["<kind>"]``; every field with a docstring;
``SCHEMA``
    the columns of its table, a ``pyarrow`` schema. Columns of lists are for drawing and do not go into the CSV;
``open_analysis_data(settings, *, source, store)``
    opens what it reads before any model is loaded, once for all models; ``source`` is the language that others are held
    against. What it gives has ``fingerprints()``: a list of strings, the same for the same data wherever they lie;
``analyse(model, card, data, *, settings, context)``
    one model's table, which is kept in the store under the model, the settings, the data and ``VERSION``. The model is
    on ``context.distributed.device`` in evaluation mode; a pretrained encoder comes with the fusion ``last``, no
    heads and a card without tasks. ``load_encoder(card.encoder, revision=card.revision)`` is what a model was trained
    from. Long work tells ``context.progress`` how far it is: begin, advance, end.

and may define

``SHOWN``
    the columns that the terminal and the Markdown show (default: all floating-point columns);
``APART``
    the columns that give a line each instead of a mean (default: ``("language",)``);
``MEASURES``
    columns that are held against a study's zero-shot scores by correlation and in a scatter (default: none);
``file_stem(settings)``
    what its files are called (default: the kind and ``settings.on``);
``draw(table, *, settings)``
    figures as SVG by name (``{"es": svg}`` becomes ``STEM-es.svg``), from the table of all models, whose first columns
    are ``task``, ``model`` and ``seed``;
``remarks(table, *, settings)``
    sentences, without their full stop, that must stand below the table of all models; raises an error where models
    cannot be compared;
``fsync(settings, encoders)``
    the settings with what only the models can tell filled in: ``encoders`` are those that they were before training.

Tables, files and figures of all models are made from the stored tables by ``study/analysing.py`` and
``study/show_analysis.py``. torch is imported inside functions.
"""
