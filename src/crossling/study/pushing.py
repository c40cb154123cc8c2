"""Upload of an exported model to the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from crossling.errors import UserError


def check_name(name: str) -> None:
    """Refuse what cannot be a repository's name, before anything is written."""
    from huggingface_hub import errors
    from huggingface_hub.utils._validators import validate_repo_id

    try:
        validate_repo_id(name)
    except errors.HFValidationError:
        raise UserError(f"--push {name}: write OWNER/NAME, with letters, digits, '-', '_' and '.'") from None


def push_folder(folder: Path, name: str) -> str:
    """Upload a folder as a repository, private where it is new; returns its address.

    The token is the one that ``hf auth login`` stored, or the variable HF_TOKEN. huggingface_hub reads it; nothing here
    does, so that no message and no file can have it.
    """
    from huggingface_hub import HfApi, errors

    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message="Model exported by crossling")
    except errors.LocalTokenNotFoundError:
        raise UserError("--push: no token; log in with hf auth login, or set HF_TOKEN") from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no answer"
        reason = "the token is missing, wrong, or may not write there" if status in (401, 403) else f"status {status}"
        raise UserError(f"--push {name}: the hub refused it ({reason}). {folder} is complete.") from None
    except (OSError, ValueError) as error:
        raise UserError(f"--push {name}: failed: {type(error).__name__}. {folder} is complete; push again.") from None
    return str(address)
