// The plan of EXPLAIN for people: one operator a line, those that feed an operator first or inside it.

import { respaced } from "../format";

type Plan = Record<string, unknown>;

const CHILDREN = ["~children", "~child", "first", "second", "scans"];

const isPlan = (value: unknown): value is Plan | Plan[] =>
  Array.isArray(value)
    ? value.every(isPlan)
    : typeof value === "object" && value !== null && "#operator" in value;

/** The plan in a row of EXPLAIN; `undefined` for other rows. */
export function planOf(rows: string[]): Plan | undefined {
  if (rows.length !== 1 || !rows[0]!.includes('"#operator"')) return undefined;
  const { plan } = JSON.parse(rows[0]!) as { plan?: unknown };
  return isPlan(plan) && !Array.isArray(plan) ? plan : undefined;
}

function Operator({ plan }: { plan: Plan }) {
  const children = CHILDREN.map((name) => plan[name]).filter(isPlan).flat();
  const name = String(plan["#operator"]);
  // A sequence is its parts.
  if (name === "Sequence" || name === "Parallel") return <Operators plans={children} />;
  const facts = Object.entries(plan).filter(
    ([name, value]) => name !== "#operator" && !(CHILDREN.includes(name) && isPlan(value)),
  );
  return (
    <li>
      <strong>{name}</strong>
      {facts.map(([name, value]) => (
        <span key={name}>
          {" "}
          <span class="muted">{name}:</span> {typeof value === "string" ? value : respaced(JSON.stringify(value), 0)}
        </span>
      ))}
      {children.length > 0 && (
        <ol>
          <Operators plans={children} />
        </ol>
      )}
    </li>
  );
}

const Operators = ({ plans }: { plans: Plan[] }) => (
  <>
    {plans.map((plan, at) => (
      <Operator plan={plan} key={at} />
    ))}
  </>
);

export const PlanView = ({ plan }: { plan: Plan }) => (
  <ol class="plan" aria-label="Plan">
    <Operator plan={plan} />
  </ol>
);
