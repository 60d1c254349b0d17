// Sets the theme before the page is drawn: a stored choice, else what the system says.
{
  const theme = localStorage.getItem("theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
