"""The Faust app of a worker: agents, services, web server and sensors; no consumer, no tables, no topics of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Any, cast

import faust
from faust.app.base import BootStrategy


class _NoKafka(BootStrategy):
    """Everything but Kafka: records come through `intake` and go through `outbox`."""

    enable_kafka = False
    enable_kafka_consumer = False
    enable_kafka_producer = False
    enable_web = False


class ActorApp(faust.App):
    """A Faust app whose channels flow at once: the consumer that would open them does not exist."""

    BootStrategy = cast("Any", _NoKafka)

    def _create_directories(self) -> None:
        """None: Faust's are for tables, and it has none."""

    def on_init_dependencies(self) -> Iterable[Any]:
        """Without Faust's own monitor, which nobody asks: it keeps a name for each actor that ever was. `sensors.Counting` counts."""
        found = super().on_init_dependencies()
        self.sensors.remove(self.monitor)
        return found

    async def on_started(self) -> None:
        """Open the channels."""
        await super().on_started()
        self.flow_control.resume()


def new_app(name: str) -> ActorApp:
    """An app that is not finalized into Faust's command line, and keeps nothing on disk."""
    app = ActorApp(
        name,
        broker="kafka://unused",
        datadir=tempfile.gettempdir(),
        autodiscover=False,
        web_enabled=False,
        table_standby_replicas=0,
        topic_disable_leader=True,
    )
    app.in_worker = True
    return app
