# SPDX-License-Identifier: Apache-2.0
"""What the documentation says that a sender loses: of Headgate's own forms, what `headgate check` prints."""
from cells import FORMS, GRPC_EXHAUSTED, SENDERS, TITLES

NONE, MAY, MUST = "loses nothing", "can lose", "loses"


def by_check(report):
    """{(sender, form): NONE, MAY or MUST} of the JSON of `headgate check` for configuration()."""
    out = {}
    for endpoint in report["targets"][0]["endpoints"]:
        protocol, form = endpoint["name"].split("-", 1)
        for sender in SENDERS:
            kind = sender.split("-")[0]
            if not sender.endswith(protocol):
                continue
            effects = [warning["effect"] for warning in endpoint["senders_that_lose"]
                       if TITLES[kind] in warning["sender"] or
                       (warning["sender"] == "every SDK" and kind != "collector")]
            out[sender, form] = (NONE if not effects else
                                 MAY if all(effect.startswith("can lose") for effect in effects) else MUST)
    for sender in SENDERS:
        # A reset is what it ends in at the deadline, and what newcomers may get at once: not each batch.
        for form, like in (("shut", "reset"), ("auto", "auto")):
            if out[sender, like] == MUST:
                out[sender, form] = MAY
            elif form == "shut":
                out[sender, form] = out[sender, like]
    return out


def configuration():
    """Every form of Headgate's on an endpoint of its own."""
    endpoints = []
    for name, form in FORMS.items():
        for protocol in form.protocols if form.refuse is not None else ():
            endpoint = {"name": f"{protocol}-{name}", "port": 10000 + len(endpoints), "protocol": protocol,
                        "refuse": form.refuse}
            if name == "grpc-exhausted":
                endpoint |= GRPC_EXHAUSTED
            endpoints.append(endpoint)
    return {"apiVersion": "headgate/v1",
            "targets": [{"name": "senders", "match": {"cgroup": "/senders"}, "endpoints": endpoints}]}


def expectations(report):
    out = by_check(report)
    for name, form in FORMS.items():
        if form.refuse is None:
            # Not Headgate's: a collector waits, and an SDK has ten seconds.
            out |= {(sender, name): NONE if sender.startswith("collector") else MAY
                    for sender in SENDERS if sender.split("-")[1] in form.protocols}
    return out
