"""The query of the Yahoo streaming benchmark, all in columns."""

from __future__ import annotations

from typing import TypedDict

import headgate as hg

from .records import OUT_OF_ORDER, Topics


class OfCampaign(TypedDict):
    """A row of the table of ads."""

    ad_id: str
    campaign_id: str


class Seen(TypedDict):
    """What is read of an event: the published projection."""

    ad_id: str
    event_type: str
    event_time: int


def ysb(app: hg.App, t: Topics) -> None:
    """Views of each campaign in 10 s. The topic of ads is a table that each worker has a copy of: no event is shuffled to meet its ad."""
    ads = app.input(t.ad, serde=hg.json(OfCampaign), key_serde=hg.text()).table("ads", broadcast=True)
    events = app.input(t.adevent, serde=hg.json(Seen), timestamp="event_time", max_out_of_order=OUT_OF_ORDER).columns()
    views = events.filter(hg.col("event_type") == "view").join(ads, on="ad_id", take=["campaign_id"])
    views.repartition("campaign_id").window(hg.tumbling("10s")).agg(views=hg.count()).to(t.out)
