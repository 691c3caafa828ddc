"""Compiles the hot loops; everything else about the package stands in pyproject.toml.

Each extension has a plain Python twin, so a machine without a compiler still gets a working
package: the extensions are optional and the twins take over.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

EXTENSIONS = [
    Extension(
        f"onehop.transport.{name}",
        [f"src/onehop/transport/{name.replace('.', '/')}.pyx"],
        extra_compile_args=["-O3"],
        optional=True,
    )
    for name in (
        "_datagrams",
        "_envelope",
        "_histogram",
        "_lane",
        "zeromq._frames",
        "zeromq._outlet",
    )
]

setup(
    ext_modules=cythonize(
        EXTENSIONS,
        build_dir="build/cython",
        include_path=["src"],
        compiler_directives={"language_level": "3", "embedsignature": True},
    )
)
