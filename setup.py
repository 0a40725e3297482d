"""The one thing that setup.cfg cannot say: a compiled part, which is left out where there is no compiler."""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension(
            "headgate.agents.records._columns", ["agents/records/columns.c"], extra_compile_args=["-O3"], optional=True
        ),
    ]
)
