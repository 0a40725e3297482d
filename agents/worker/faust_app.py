"""The Faust app of a worker: agents, services, web server and sensors, without a consumer, tables or topics."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from typing import Any, cast

import faust
from faust.app.base import BootStrategy


class _NoKafka(BootStrategy):
    """Starts everything but Kafka: records come through `intake` and leave through `outbox`."""

    enable_kafka = False
    enable_kafka_consumer = False
    enable_kafka_producer = False
    enable_web = False


class ActorApp(faust.App):
    """A Faust app that opens its channels itself, because it has no consumer that would."""

    BootStrategy = cast("Any", _NoKafka)

    def _create_directories(self) -> None:
        """Create none: Faust needs them for its tables, and this app has none."""

    def on_init_dependencies(self) -> Iterable[Any]:
        """Leave out Faust's own monitor. No one reads it, and it keeps a name for every actor that ever lived. `sensors.Counting` counts
        instead.
        """
        found = super().on_init_dependencies()
        self.sensors.remove(self.monitor)
        return found

    async def on_started(self) -> None:
        """Open the channels."""
        await super().on_started()
        self.flow_control.resume()


def new_app(name: str) -> ActorApp:
    """An app that is not finalized into Faust's command line and stores nothing on disk."""
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
