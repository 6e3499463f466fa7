// The dialog for a new password: one's own, or as an administrator another user's.

import { useState } from "preact/hooks";
import { ask, changeOwnPassword, userPath } from "./api";
import { Dialog, RequestForm, TextField, done } from "./ui";

export function PasswordDialog({ user, isOwn, close }: { user: string; isOwn: boolean; close: () => void }) {
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const [again, setAgain] = useState("");
  const isWrong = again !== "" && again !== password;
  const submit = async () => {
    if (isOwn) await changeOwnPassword(user, current, password);
    else await ask("PATCH", userPath(user), { form: { password } });
    done(`Changed the password of ${user}.`);
    close();
  };
  return (
    <Dialog title={isOwn ? "Change your password" : `Set the password of ${user}`} close={close}>
      <RequestForm text="Save" cancel={close} submit={submit} disabled={password === "" || password !== again}>
        {isOwn && (
          <TextField
            label="Current password"
            type="password"
            autocomplete="current-password"
            value={current}
            change={setCurrent}
            required
          />
        )}
        <TextField
          label="New password"
          type="password"
          autocomplete="new-password"
          value={password}
          change={setPassword}
          required
        />
        <TextField
          label="New password again"
          hint={isWrong ? "The two differ" : undefined}
          type="password"
          autocomplete="new-password"
          value={again}
          change={setAgain}
          required
        />
        <p class="hint">Programs that log in as {user} need the new password from their next login on.</p>
      </RequestForm>
    </Dialog>
  );
}
