"""Metrics in Prometheus' text format."""

from __future__ import annotations

from crossling.inference.server.metrics import Counter, Gauge, Histogram, ServerMetrics, format_metrics


def test_metrics_are_in_the_text_format_of_prometheus() -> None:
    counter, histogram = Counter("c_total", "Things."), Histogram("h", "Sizes.", (1.0, 2.5))
    counter.add(path="/", status="200")
    counter.add(2, status="200", path="/")
    counter.add(0.5, path='a"b\\c\nd')
    for value in (0.5, 1.0, 2.0, 9.0):
        histogram.observe(value, model="x")
    gauge = Gauge("g", "Now.", lambda: {(): 3.0})
    assert format_metrics([counter, histogram, gauge]).splitlines() == [
        "# HELP c_total Things.",
        "# TYPE c_total counter",
        'c_total{path="/",status="200"} 3',
        'c_total{path="a\\"b\\\\c\\nd"} 0.5',
        "# HELP h Sizes.",
        "# TYPE h histogram",
        'h_bucket{model="x",le="1.0"} 2',
        'h_bucket{model="x",le="2.5"} 3',
        'h_bucket{model="x",le="+Inf"} 4',
        'h_sum{model="x"} 12.5',
        'h_count{model="x"} 4',
        "# HELP g Now.",
        "# TYPE g gauge",
        "g 3",
    ]


def test_server_metrics_read_queues() -> None:
    lines = ServerMetrics(lambda: {"ner": 4}, lambda: 2).format().splitlines()
    assert 'crossling_queued_inputs{model="ner"} 4' in lines
    assert "crossling_active_requests 2" in lines
