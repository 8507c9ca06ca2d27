-- 86_inquiry.sql: what became of opaque work whose worker is gone, by proof, by its ceiling, or by an operator's word.
--
-- LAW    70.10  live: it is waited for; ended: settled under the same attempt (80); gone: lost now; silent past its ceiling: lost
--        85.7   what lost means was declared: replay | fail | ask
--        85.2   judged again under the lock
-- OWNS   nothing; writes process, and through lose_ (85)
-- LOCKS  the run and its ancestors, ascending

-- Whoever adopted an attempt has proof that its process is gone and left no word; `_begun` false: its command never ran, and no try is charged.
-- Answers: lost (what that means was declared: lose_) · given_back · stale · again.
create function fencepost.lose_step(_rid bigint, _fence uuid, _begun boolean) returns text language plpgsql volatile as $law$
declare v_now timestamptz := fencepost.enter_(); v_held fencepost.held_[] := fencepost.hold_(array[_rid], array[_fence], fencepost.above_(array[_rid]));
begin
  if v_held[1].how = 'stale' then         -- this fence's own word, asked again (00.3)
    return coalesce((select a.ended from fencepost.attempt a where a.rid = _rid and a.fence = _fence
                        and (a.ended = 'lost' or a.ended = 'given_back' and a.reason = 'never_ran')), 'stale');
  end if;
  if v_held[1].how <> 'held' then return v_held[1].how; end if;
  if _begun then
    perform fencepost.lose_(_rid, 'process_gone', v_now);
    update fencepost.process p set loose = false where p.rid = _rid and p.number = v_held[1].number and p.loose;
    return 'lost';
  end if;
  if v_held[1].state = 'cancelling' then
    perform fencepost.close_leg_(array[_rid], 'given_back', 'never_ran', v_now);
    perform fencepost.let_go_(_rid, v_now);
  else
    perform fencepost.return_(_rid, 'never_ran', v_now);
  end if;
  return 'given_back';
end $law$;

-- An operator's word that the process of this step's newest try is gone: its host is, say.
-- Answers: done (also to the same word asked again) · refused (then `why`) · unknown_run.
create function fencepost.declare_lost(_org text, _id text, _step text, _by text) returns table (answer text, why text) language plpgsql volatile as $law$
#variable_conflict use_column
declare v_now timestamptz := fencepost.enter_(); v_said jsonb := jsonb_build_object('verdict', 'lost', 'by', _by); v_rid bigint; t record;
begin
  select s.child into v_rid from fencepost.run r join fencepost.step s on s.rid = r.rid where r.org = _org and r.id = _id and s.id = _step;
  if not found then return query select 'unknown_run', null::text; return; end if;
  perform from fencepost.task x where x.rid = any (array(select a.rid from fencepost.ancestors_(array[v_rid]) a(rid)) || v_rid) order by x.rid for no key update;
  select x.* into t from fencepost.task x where x.rid = v_rid;
  if t.rid is null or not t.opaque or t.fence is null or not t.begun then
    return query select case when x.said then 'done' else 'refused' end, case when not x.said then 'no process of this step runs, as far as anybody knows' end
      from (select exists (select from fencepost.event e where e.rid = v_rid and e.type = 'run.resolved' and e.data = v_said) as said) x;
    return;
  end if;
  if exists (select from fencepost.incarnation i where i.id = t.holder and i.ended is null) then
    return query select 'refused', 'its worker is alive and looks after it: cancel the plan, or stop the worker'; return;
  end if;
  update fencepost.task x set seq = x.seq + 1 where x.rid = v_rid;
  insert into fencepost.event (rid, seq, at, type, number, data)
  values (v_rid, t.seq + 1, v_now, 'run.resolved', t.number, v_said);
  perform fencepost.lose_(v_rid, 'operator', v_now);
  return query select 'done', null::text;
end $law$;
