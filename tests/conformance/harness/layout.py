"""Where everything is.

Sources are read from the repository; whatever is installed, built or logged
goes below `.conformance/` in the repository root, which git ignores, so that
removing that one directory gives a clean start.
"""

from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent
REPOSITORY = SOURCES.parent.parent
SUB_DOCUMENTS = SOURCES / "sub_documents.json"
QUICKSTARTS = REPOSITORY / "examples" / "quickstart"
WORK = REPOSITORY / ".conformance"
LOGS = WORK / "logs"
VENV = WORK / "venv"
NODE = WORK / "node"
JAVA = WORK / "java"
SPRING = WORK / "spring"
OTTOMAN = WORK / "ottoman"
GO = WORK / "go"
RUST = WORK / "rust-target"
DATA = WORK / "data"
