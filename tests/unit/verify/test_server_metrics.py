"""Metrics pages, and what rose between two of them."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

from trt_spec.verify.server_metrics import Scrape, parse_metrics, scrape_metrics, subtract

PAGE = """# HELP nv_inference_request_success Number of successful requests
# TYPE nv_inference_request_success counter
nv_inference_request_success{{model="tensorrt_llm_draft",version="1"}} {drafts}
# TYPE trtspec_running_requests gauge
trtspec_running_requests{{model="ensemble"}} {running}
# TYPE trtspec_request_seconds histogram
trtspec_request_seconds_bucket{{le="+Inf"}} {drafts}
trtspec_request_seconds_sum 1.5e-3
a line that is none
broken{{a="b"}} nonsense
"""


def test_counters_rise_and_gauges_stand():
    before, after = (parse_metrics(PAGE.format(drafts=n, running=r)) for n, r in ((3, 9), (10, 2)))
    delta = subtract(before, after)
    assert delta.counters == {
        'nv_inference_request_success{model="tensorrt_llm_draft",version="1"}': 7.0,
        'trtspec_request_seconds_bucket{le="+Inf"}': 7.0,
    }
    assert delta.gauges == {'trtspec_running_requests{model="ensemble"}': 2.0} and delta.missing == ""


def test_a_restarted_server_counts_from_zero():
    before, after = (parse_metrics(PAGE.format(drafts=n, running=0)) for n in (9, 2))
    assert 2.0 in subtract(before, after).counters.values()


def test_a_page_is_read_over_http():
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(PAGE.format(drafts=5, running=1).encode())

        def log_message(self, *_): ...

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.handle_request, daemon=True).start()
        scrape = scrape_metrics(f"http://127.0.0.1:{server.server_port}/metrics")
    assert scrape.missing == "" and 5.0 in scrape.values.values()


def test_a_server_without_metrics_is_no_error():
    scrape = scrape_metrics("http://127.0.0.1:1/metrics")
    assert "http://127.0.0.1:1/metrics cannot be read" in scrape.missing
    assert subtract(scrape, Scrape({}, {})).missing == scrape.missing
