import { useState } from "preact/hooks";
export function QueryPage() { const [x]=useState(0); return <h1>Query{x}</h1>; }
